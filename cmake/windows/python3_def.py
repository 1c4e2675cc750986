"""Print the definition of the import library of python3.dll: the symbols of the stable ABI."""

from abi3info import DATAS, FUNCTIONS

print("LIBRARY python3.dll\nEXPORTS")
print(*sorted(symbol.name for symbol in FUNCTIONS), sep="\n")
print(*sorted(f"{symbol.name} DATA" for symbol in DATAS), sep="\n")
