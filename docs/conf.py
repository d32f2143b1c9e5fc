"""How Sphinx builds the documentation; `make docs` runs it, and decision 0025 says why these tools."""

from rarely import __version__

project = "rarely"
author = "The rarely developers"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Docstrings use single backticks for code, as Markdown does.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = True
napoleon_google_docstring = True
napoleon_use_rtype = False
# Examples can be copied without their prompts and results.
copybutton_prompt_text = ">>> "

# Blocks without a language are commands and drawings.
highlight_language = "none"

html_theme = "furo"
html_title = f"rarely {release}"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
html_static_path = ["static"]
html_extra_path = ["llms.txt"]
html_css_files = ["pictures.css"]
html_show_copyright = False
