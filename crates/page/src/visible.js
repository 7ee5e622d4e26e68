// Makes invisible characters in other people's text visible.

// The text with the codes of characters that could hide or reorder a part of it: controls, separators
// of lines, bidirectional and other invisible characters.
export function visible(text) {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu,
    (character) => `\\u{${character.codePointAt(0).toString(16)}}`,
  );
}
