// What the theme leaves out for those who use no mouse, or no eyes.

for (const caption of document.querySelectorAll('p.caption[role="heading"]')) {
  caption.ariaLevel = "2";
}

// A table or a program that is wider than the page is scrolled with the arrow keys.
const reachable = () => {
  for (const wide of document.querySelectorAll("pre, .table-wrapper")) {
    if (wide.scrollWidth > wide.clientWidth) {
      wide.tabIndex = 0;
    } else {
      wide.removeAttribute("tabindex");
    }
  }
};
reachable();
window.addEventListener("resize", reachable);

// On a phone, the search is in the menu: a button in the header leads there.
const menu = document.getElementById("__navigation");
const field = document.querySelector(".sidebar-search");
const left = document.querySelector(".mobile-header .header-left");
if (menu && field && left) {
  const button = document.createElement("button");
  button.className = "header-search";
  button.ariaLabel = "Search";
  button.innerHTML =
    '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round">' +
    '<circle cx="10" cy="10" r="7"/><path d="m21 21-6-6"/></svg>';
  button.addEventListener("click", () => {
    menu.checked = true;
    field.focus({ preventScroll: true });
  });
  left.append(button);
}
