// The form in which a person logs in.

import { get, logIn } from "./api.js";
import { element, field, form, say, setText } from "./dom.js";

// The address that the page had before a person went to an issuer.
const ADDRESS_BEFORE = "sshjobs-address";

// A form that calls `onLoggedIn` once the server has accepted the token.
export function loginForm(onLoggedIn) {
  const token = field("Token", { className: "masked", required: true, name: "token" });
  const problem = element("p", { className: "problem", role: "alert" });
  const submit = async () => {
    try {
      await logIn(token.input.value.trim());
    } catch (error) {
      setText(problem, error.status === 401 ? "This token is not valid, or has expired. Ask for a new one." : error.message);
      token.input.setAttribute("aria-invalid", "true");
      token.input.select();
      return;
    }
    token.input.value = "";
    say("Logged in");
    onLoggedIn();
  };
  const issuers = element("p", { className: "actions" });
  showIssuers(issuers);
  const made = form(
    submit,
    { className: "login" },
    element("h2", {}, "Log in"),
    element("p", {}, "Use a token from “sshjobs token new”, or one from your identity provider."),
    token.label,
    problem,
    element("button", { type: "submit" }, "Log in"),
    issuers,
  );
  return { form: made, focus: () => token.input.focus() };
}

// Links to the identity providers with which a person can log in.
async function showIssuers(place) {
  try {
    const { issuers } = await get("login/issuers");
    const links = issuers.map((name) =>
      element(
        "a",
        {
          href: `login/oidc/${encodeURIComponent(name)}`,
          on: { click: () => sessionStorage.setItem(ADDRESS_BEFORE, location.search + location.hash) },
        },
        `Log in with ${name}`,
      ),
    );
    place.replaceChildren(...links);
  } catch (error) {
    say(error.message, true);
  }
}

// Restores the address that the page had before a person went to an issuer.
export function restoreAddress() {
  const before = sessionStorage.getItem(ADDRESS_BEFORE);
  sessionStorage.removeItem(ADDRESS_BEFORE);
  if (before && location.search === "" && location.hash === "") history.replaceState(null, "", before);
}
