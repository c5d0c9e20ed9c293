// Runs before the first paint, so that a dark screen never flashes white. "system" follows the system as it changes.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let chosen = "system";
    try {
      chosen = localStorage.getItem("theme") ?? "system";
    } catch {
      // Storage may be forbidden; the system's choice is a good one.
    }
    const theme = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
    document.documentElement.dataset.theme = theme === "dark" ? "dark" : "light";
  };
  apply();
  dark.addEventListener("change", apply);
  addEventListener("themechange", apply);
  addEventListener("storage", apply);
})();

// A part of the program that did not come, as of a hub that restarts, is taken out of the document: Next waits for ever for one
// that is there, and asks again for one that is not.
addEventListener(
  "error",
  ({ target }) => {
    if (target instanceof HTMLScriptElement && target.async) target.remove();
  },
  true,
);
