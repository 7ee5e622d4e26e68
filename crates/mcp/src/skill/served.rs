//! The manifest of the skill and its files.

use rmcp::model::{Skill, SkillFrontmatter, SkillResource, SkillResources};

/// Address of the skill. Its other files are below the same folder.
const SKILL: &str = "skill://sshjobs/SKILL.md";

/// The files: each with its address.
const FILES: [(&str, &str); 2] = [
    (SKILL, include_str!("SKILL.md")),
    (
        "skill://sshjobs/references/recipes.md",
        include_str!("recipes.md"),
    ),
];

/// The text of a file of the skill.
pub(crate) fn file(uri: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == uri).map(|(_, text)| *text)
}

/// The skill, as clients list it.
pub(crate) fn skill() -> Skill {
    let files = FILES.iter().map(|(uri, text)| SkillResource::from_bytes(*uri, text.as_bytes()));
    Skill::new(
        SKILL,
        frontmatter(FILES[0].1),
        SkillResources::Files(files.collect()),
    )
}

/// The fields before the text: lines `name: value` between two lines `---`.
fn frontmatter(text: &str) -> SkillFrontmatter {
    let lines = text.lines().skip(1).take_while(|line| *line != "---");
    let fields = lines.filter_map(|line| line.split_once(": "));
    let mut frontmatter = SkillFrontmatter::new("", "");
    for (name, value) in fields {
        match name {
            "name" => value.clone_into(&mut frontmatter.name),
            "description" => value.clone_into(&mut frontmatter.description),
            other => frontmatter = frontmatter.with_field(other, value),
        }
    }
    frontmatter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skill_is_as_the_specification_wants_it() {
        let skill = skill();
        assert_eq!(skill.validate(), Ok(()));
        assert!(skill.frontmatter.description.contains("remote hosts"));
        assert!(skill.frontmatter.extra.contains_key("license"));
    }
}
