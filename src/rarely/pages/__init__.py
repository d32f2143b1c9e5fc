"""The page kit: one base template, one style sheet, and figures that are readable in light and dark.

page      `render` fills a template that extends `base.html`
grid      `Grid`, a table for HTML, Markdown and the console
figures   matplotlib's style and the colours that all figures share
svg       figures inside a page, and `Chart`: a small line chart without matplotlib, for pages that a server makes
"""
