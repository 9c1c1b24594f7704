// The theme that was chosen, before anything is drawn. A page without storage follows the system.
try {
  const theme = localStorage.getItem("polyrank-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  /* storage is switched off */
}
