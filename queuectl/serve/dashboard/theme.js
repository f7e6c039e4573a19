// Loaded before anything is painted: the theme chosen in this browser, if any. Without one the system's is taken.
"use strict";
try {
  const chosen = localStorage.getItem("queuectl-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is forbidden: the system's theme it is.
}
