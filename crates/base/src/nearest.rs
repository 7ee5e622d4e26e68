//! The name that was probably meant.

/// The candidate most similar to `name`.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.map(|candidate| (similarity(name, candidate), candidate));
    let (score, best) = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (score > 0.7).then_some(best)
}

/// Similarity of two words, from 0 to 1.
fn similarity(one: &str, other: &str) -> f64 {
    // In a short word a single slip of the finger counts too much otherwise.
    let is_slip = one.len() > 2 && strsim::osa_distance(one, other) == 1;
    let similarity = strsim::jaro_winkler(one, other);
    if is_slip {
        similarity.max(0.75)
    } else {
        similarity
    }
}
