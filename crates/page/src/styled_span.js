// A piece of text with the colours that a program gave it.

import { element } from "./dom.js";

const ATTRIBUTES = ["bold", "dim", "italic", "underline", "strike"];

export function styledSpan(span) {
  const made = element("span", {}, span.text);
  for (const attribute of ATTRIBUTES) {
    if (span[attribute]) made.classList.add(attribute);
  }
  if (span.reversed) {
    setColour(made, "on", "backgroundColor", span.fg ?? "text");
    if (span.fg?.startsWith("#")) setColour(made, "fg", "color", span.bg ?? contrastTo(span.fg));
  } else {
    setColour(made, "fg", "color", span.fg);
    setColour(made, "bg", "backgroundColor", span.bg);
  }
  return made;
}

// Black or white, whichever can be read on a colour such as `#ff8700`.
function contrastTo(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000000" : "#ffffff";
}

// Named colours are in the style sheet, for light and dark.
function setColour(target, prefix, property, colour) {
  if (!colour) return;
  if (colour.startsWith("#")) target.style[property] = colour;
  else target.classList.add(`${prefix}-${colour}`);
}
