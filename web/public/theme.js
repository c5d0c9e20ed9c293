// Runs before the first paint, so that a dark screen never flashes white. Without a choice, the system's preference applies.
(() => {
  const apply = () => {
    let chosen = null;
    try {
      chosen = localStorage.getItem("theme");
    } catch {
      // Storage may be forbidden.
    }
    document.documentElement.dataset.theme = chosen === "light" || chosen === "dark" ? chosen : "system";
  };
  apply();
  addEventListener("themechange", apply);
  addEventListener("storage", apply);
})();

// Removes scripts that failed to load, as from a hub that restarts: Next waits forever for a script that is in the document,
// but loads one again that is not.
addEventListener(
  "error",
  ({ target }) => {
    if (target instanceof HTMLScriptElement && target.async) target.remove();
  },
  true,
);
