// The form in which a person logs in.

import { logIn } from "./api.js";
import { element, field, say } from "./dom.js";

// A form that calls `onLoggedIn` once the server has accepted the token.
export function loginForm(onLoggedIn) {
  const token = field("Token", { className: "masked", required: true, name: "token" });
  const form = element(
    "form",
    { className: "login" },
    element("h2", {}, "Log in"),
    element("p", {}, "With a token of “sshjobs token new”, or one of your identity provider."),
    token.label,
    element("button", { type: "submit" }, "Log in"),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await logIn(token.input.value.trim());
    } catch (error) {
      say(error.message, true);
      token.input.select();
      return;
    }
    token.input.value = "";
    say("Logged in");
    onLoggedIn();
  });
  return { form, focus: () => token.input.focus() };
}
