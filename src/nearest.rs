/// The candidate most similar to `name`.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    let (score, best) = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (score > 0.7).then_some(best)
}
