// Dark or light: as the system says, until the button is used.
(() => {
  const page = document.documentElement;
  const setTheme = (name) => { page.dataset.theme = name; };
  setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.getElementById("theme").addEventListener("click", () => setTheme(page.dataset.theme === "dark" ? "light" : "dark"));
})();
