"""What abbreviations, symbols and endings are called when English is read aloud: the tables of `reading.py`."""

from __future__ import annotations

CURRENCIES = {
    "$": ("dollar", "cent"), "US$": ("U S dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny"),
    "¥": ("yen", ""), "₹": ("rupee", "paisa"), "USD": ("U S dollar", "cent"), "EUR": ("euro", "cent"),
    "GBP": ("pound", "penny"), "CHF": ("Swiss franc", "centime"), "JPY": ("yen", ""), "₩": ("won", ""),
    "CAD": ("Canadian dollar", "cent"), "AUD": ("Australian dollar", "cent"), "A$": ("Australian dollar", "cent"),
    "C$": ("Canadian dollar", "cent"),
}  # fmt: skip

SCALES = {"k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion"}
UNITS = {
    "km/h": "kilometer per hour", "kph": "kilometer per hour", "kmh": "kilometer per hour", "mph": "mile per hour",
    "m/s": "meter per second", "m/s²": "meter per second squared", "km/s": "kilometer per second", "km": "kilometer",
    "m": "meter", "cm": "centimeter", "mm": "millimeter", "µm": "micrometer", "μm": "micrometer", "nm": "nanometer",
    "ft": "foot", "mpg": "mile per gallon", "yd": "yard", "mi": "mile", "ly": "light-year", "km²": "square kilometer",
    "m²": "square meter", "cm²": "square centimeter", "mm²": "square millimeter", "km2": "square kilometer",
    "m2": "square meter", "m³": "cubic meter", "m3": "cubic meter", "cm³": "cubic centimeter", "sq ft": "square foot",
    "sq mi": "square mile", "sq km": "square kilometer", "sq m": "square meter", "ft²": "square foot",
    "mi²": "square mile", "ft³": "cubic foot", "g/cm³": "gram per cubic centimeter",
    "kg/m³": "kilogram per cubic meter", "kg": "kilogram", "g": "gram", "mg": "milligram", "µg": "microgram",
    "μg": "microgram", "mcg": "microgram", "lb": "pound", "lbs": "pound", "oz": "ounce", "st": "stone",
    "fl oz": "fluid ounce", "l": "liter", "L": "liter", "ml": "milliliter", "mL": "milliliter", "cl": "centiliter",
    "dl": "deciliter", "gal": "gallon", "qt": "quart", "pt": "pint", "tsp": "teaspoon", "tbsp": "tablespoon",
    "Tbsp": "tablespoon", "°C": "degree Celsius", "°F": "degree Fahrenheit", "° C": "degree Celsius",
    "° F": "degree Fahrenheit", "ºC": "degree Celsius", "ºF": "degree Fahrenheit", "°": "degree", "s": "second",
    "sec": "second", "secs": "second", "min": "minute", "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour",
    "ms": "millisecond", "yr": "year", "yrs": "year", "wk": "week", "wks": "week", "mo": "month", "kb": "kilobyte",
    "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte", "PB": "petabyte",
    "Mbps": "megabit per second", "Gbps": "gigabit per second", "Mbit/s": "megabit per second",
    "MB/s": "megabyte per second", "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz",
    "W": "watt", "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "kWh": "kilowatt hour", "MWh": "megawatt hour",
    "V": "volt", "kV": "kilovolt", "mV": "millivolt", "mA": "milliamp", "mAh": "milliamp hour",
    "Ah": "amp hour", "kJ": "kilojoule", "kcal": "kilocalorie", "cal": "calorie",
    "kN": "kilonewton", "Pa": "pascal", "hPa": "hectopascal", "kPa": "kilopascal", "bar": "bar", "psi": "P S I",
    "dB": "decibel", "ha": "hectare", "hp": "horsepower", "rpm": "R P M", "ppm": "part per million",
    "bpm": "beat per minute", "px": "pixel", "MP": "megapixel", "Ω": "ohm", "kΩ": "kiloohm",
    "atm": "atmosphere", "mol": "mole", "mg/dL": "milligram per deciliter", "mg/dl": "milligram per deciliter",
    "mmHg": "millimeter of mercury",
}  # fmt: skip
"""What a unit is called after one. After an amount only, so that "in" and "a" stay words."""

ABBREVIATIONS = (
    (r"\bDr\.? (?=[A-Z])", "Doctor "), (r"(?<=[a-z] )Dr\.?(?=[\s,.]|$)", "Drive"),
    (r"\bMr\b\.?(?= [A-Z]| and )", "Mister"), (r"\bMrs\.? (?=[A-Z])", "Missus "), (r"\bMs\. ?", "Miz "),
    (r"\bProf\. ?", "Professor "), (r"\bSt\.? (?=[A-Z][a-z])", "Saint "),
    (r"(?<=[a-z] )St\.?(?=[\s,.;!?]|$)", "Street"), (r"\bAve\b\.?", "Avenue"), (r"(?<=[a-z] )Rd\b\.?", "Road"),
    (r"\bBlvd\b\.?", "Boulevard"), (r"\bMt\.? (?=[A-Z])", "Mount "), (r"\bApt\b\.?", "apartment"),
    (r"\bGen\. (?=[A-Z])", "General "), (r"\bSgt\. ?", "Sergeant "), (r"\bCapt\. ?", "Captain "),
    (r"\bLt\. ?", "Lieutenant "), (r"\bSen\. (?=[A-Z])", "Senator "), (r"\bRev\. (?=[A-Z])", "Reverend "),
    (r"\bGov\. (?=[A-Z])", "Governor "), (r"\bJr\b\.?", "Junior"), (r"\bSr\b\.?", "Senior"),
    (r"\bInc\b\.?", "Incorporated"), (r"\bLtd\b\.?", "Limited"), (r"\bCorp\b\.?", "Corporation"),
    (r"\bCo\.(?= |$)", "Company"), (r"\bDept\b\.?", "department"), (r"\be\. ?g\.,?", "for example,"),
    (r"\bi\. ?e\.,?", "that is,"), (r"\betc\b\.?", "et cetera"), (r"\bvs?\.(?= )", "versus"), (r"\bvs\b", "versus"),
    (r"\bapprox\b\.?", "approximately"), (r"\bca\. ?(?=\d)", "about "), (r"\bc\. ?(?=\d)", "around "),
    (r"\best\. (?=\d)", "established "), (r"\bw/o\b", "without"), (r"\bw/ ?", "with "),
    (r"\bNos?\. ?(?=\d)", "number "), (r"\bpp\. ?(?=\d)", "pages "), (r"\bp\. ?(?=\d)", "page "),
    (r"\bvol\. ?(?=\d)", "volume "), (r"\bch\. ?(?=\d)", "chapter "), (r"\bfig\. ?(?=\d)", "figure "),
    (r"\bal\.", "al"), (r"\bWWI\b", "World War One"), (r"\bWWII\b", "World War Two"), (r"\bWW ?1\b", "World War One"),
    (r"\bWW ?2\b", "World War Two"), (r"\ba\.k\.a\.|\baka\b", "A K A"), (r"\bavg\b\.?", "average"),
    (r"\bmax\.(?= )", "maximum"), (r"\bmin\.(?= )", "minimum"), (r"\btel\.", "telephone"),
    (r"\btemp\.", "temperature"), (r"\bMin\.", "minimum"), (r"\bMax\.", "maximum"),
    (r"\bApprox\b\.?", "approximately"), (r"\bPh\.? ?D\b\.?", "P H D"), (r"\bsq\. ?(?=[a-z])", "square "),
    (r"\bDegC\b", "degrees Celsius"),
)  # fmt: skip

NUMBERED = (
    "War|Chapter|Part|Volume|Book|Act|Phase|Type|Bowl|Section|Title|Appendix|Article|Scene|Stage|Level|Figure|Class|"
    "Grade|Mark|Rocky|Episode|Vatican|Apollo|Saturn|Olympiad|Unit|Amendment|Division|Schedule"
)
"""What has a number: "Chapter Four" for "Chapter IV"."""

REGNAL = (
    "Elizabeth|Charles|James|William|Henry|Edward|Richard|George|Napoleon|Francis|Nicholas|Peter|Alexander|Ivan|Mary|"
    "Catherine|Otto|Frederick|Philip|Louis|Leopold|Umberto|Victoria|Darius|Xerxes|Ptolemy|Cleopatra|Ramesses|Pius|Paul|"
    "John|Gregory|Leo|Clement|Benedict|Urban|Innocent"
)
"""Rulers' names: "Henry the Eighth" for "Henry VIII"."""


VULGAR = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
}  # fmt: skip
SYMBOLS = (
    (r"&", " and "), (r"≈|(?<!\w)~(?=\s?\d)", " about "), (r"≠|!=", " is not equal to "), (r"≤|<=", " is at most "),
    (r"≥|>=", " is at least "), (r"→|⇒|->|=>", " to "), (r"=", " equals "), (r"±|\+/-", " plus or minus "),
    (r"(?<=\d)\+(?=[\s,.;]|$)", " plus "), (r"\+", " plus "), (r"(?<=[\w)]) ?[×*·] ?(?=[\w(])", " times "),
    (r"×", " times "), (r"÷|(?<=[\w)]) / (?=[\w(])", " divided by "), (r"\^", " to the power of "),
    (r"(?<=[\d)]) [-–−] (?=[\d(a-z])", " minus "), (r"−(?=\d)", " minus "),
    (r"√", " the square root of "), (r"∞", " infinity "), (r"π", " pi "), (r"°", " degrees "), (r"%", " percent"),
    (r"<(?=\s?\d)|(?<=\w )<(?= \w)", " less than "), (r">(?=\s?\d)|(?<=\w )>(?= \w)", " greater than "),
    (r"(?<=\w)@(?=\w)|(?<= )@(?= ?\w)", " at "), (r"#(?=\d)", " number "), (r"#(?=[A-Za-z])", " hashtag "),
    (r"§ ?", " section "), (r"\band/or\b", "and or"), (r"(?<=[A-Za-z])/(?=[A-Za-z])", " or "),
    (r"(?<=\d)/(?=\d)", " over "), (r"α", " alpha "),
    (r"β", " beta "), (r"γ", " gamma "), (r"[Δδ]", " delta "), (r"θ", " theta "), (r"λ", " lambda "),
    (r"[µμ]", " mu "), (r"σ", " sigma "), (r"[Ωω]", " omega "), (r"©|®|™", " "), (r"†|‡", " "), (r"[•◦▪·]", " "),
    (r"_", " "), (r"…", "..."), (r"@", " at "), (r"[$/]", " "),
)  # fmt: skip

ENDINGS = "com|org|net|edu|gov|mil|io|co|uk|de|eu|info|app|dev|ai|tv|me|us|ca|au|fr|es|it|nl|ch|jp|int|biz|xyz|nz|ie"
"""Of web addresses."""

FILES = (
    "pdf|txt|py|docx?|xlsx?|csv|json|jpe?g|png|gif|mp3|mp4|zip|exe|html?|js|ts|md|xml|ya?ml|toml|ini|cfg|conf|log|wav|"
    "tar|gz|sh|bat|cpp|java|rs|go|css|svg|pptx?|sql|db|bak|mov|avi|iso|dll|rb|php|ipynb|epub|heic|webp|odt|rtf|tex"
)
"""Of names of files."""

SAID_AS_WORDS = frozenset("zip log doc java go bat tar gif jpeg docx bak yaml toml json conf pages key".split())
"""Endings of files that are not spelled."""

WITHOUT_AMOUNT = frozenset("mpg tbsp tsp oz km/h m/s mph kg km cm mm kWh °C °F lbs m² km²".split())
"""Units that are certainly none of English's words, also where no number stands before them."""
