"""Capturing data in a spoken dialogue: fields, and forms of them. Pure; `voice.captures` runs them."""

from voice.capture.amounts import Amount
from voice.capture.choices import Choice, yes_or_no
from voice.capture.dates import Date
from voice.capture.digits import Digits, PhoneNumber
from voice.capture.email import Email
from voice.capture.field import Field
from voice.capture.form import Form
from voice.capture.names import SpelledName
from voice.capture.times import Time

__all__ = [
    "Amount",
    "Choice",
    "Date",
    "Digits",
    "Email",
    "Field",
    "Form",
    "PhoneNumber",
    "SpelledName",
    "Time",
    "yes_or_no",
]
