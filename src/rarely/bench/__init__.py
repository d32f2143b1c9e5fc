"""How fast the library is, as ratios to what the machine itself can do: `rarely bench`."""
