// A scroll bar whose values are line numbers. The browser's own can't be used for a log of 10 million
// lines, because browsers limit the height of an element to about 33 million pixels.

import { element } from "./dom.js";

const LEAST_THUMB = 28;

export class ScrollBar {
  #thumb = element("div", { className: "thumb" });
  #range = { first: 1, last: 1, top: 1, lastTop: 1, shown: 1 };

  // `onScroll(line)` is called when a person moves it.
  constructor(controls, onScroll) {
    this.onScroll = onScroll;
    this.element = element(
      "div",
      {
        className: "scroll-bar",
        role: "scrollbar",
        tabIndex: 0,
        "aria-label": "Lines",
        "aria-orientation": "vertical",
        "aria-controls": controls,
      },
      this.#thumb,
    );
    this.element.addEventListener("pointerdown", (event) => this.#drag(event));
    this.update(this.#range);
  }

  // Shows the kept lines `first` to `last`, of which `shown` are visible from `top`, which is `lastTop` at the end.
  update({ first, last, top, lastTop, shown }) {
    this.#range = { first, lastTop };
    const now = Math.min(Math.max(Math.floor(top), first), lastTop);
    this.element.setAttribute("aria-valuemin", first);
    this.element.setAttribute("aria-valuemax", last);
    this.element.setAttribute("aria-valuenow", now);
    this.element.setAttribute("aria-valuetext", `Line ${now} of ${last}`);
    const height = this.element.clientHeight;
    const lines = Math.max(1, last - first + 1);
    const thumb = Math.min(height, Math.max(LEAST_THUMB, (height * shown) / lines));
    const part = lastTop > first ? (now - first) / (lastTop - first) : 0;
    this.#thumb.style.height = `${thumb}px`;
    this.#thumb.style.transform = `translateY(${part * (height - thumb)}px)`;
  }

  #drag(event) {
    event.preventDefault();
    this.element.focus();
    this.element.setPointerCapture(event.pointerId);
    const thumb = this.#thumb.getBoundingClientRect();
    const isOnThumb = event.clientY >= thumb.top && event.clientY < thumb.bottom;
    // A press beside the thumb moves its middle there.
    const grip = isOnThumb ? event.clientY - thumb.top : thumb.height / 2;
    const move = (moved) => {
      const bar = this.element.getBoundingClientRect();
      const room = Math.max(1, bar.height - thumb.height);
      const part = Math.min(1, Math.max(0, (moved.clientY - bar.top - grip) / room));
      const { first, lastTop } = this.#range;
      this.onScroll(Math.round(first + part * (lastTop - first)));
    };
    const end = () => {
      this.element.removeEventListener("pointermove", move);
      this.element.removeEventListener("pointerup", end);
      this.element.removeEventListener("pointercancel", end);
    };
    this.element.addEventListener("pointermove", move);
    this.element.addEventListener("pointerup", end);
    this.element.addEventListener("pointercancel", end);
    if (!isOnThumb) move(event);
  }
}
