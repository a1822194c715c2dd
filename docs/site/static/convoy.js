// Code and tables that scroll sideways can be reached by the keyboard.
addEventListener("load", () => {
  for (const box of document.querySelectorAll("article pre, article .table-wrapper"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
});
