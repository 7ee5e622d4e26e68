/// The candidate that `name` was most likely meant to be.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let score = |candidate: &str| strsim::jaro_winkler(name, candidate);
    let best = candidates.max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(best) > 0.7).then_some(best)
}
