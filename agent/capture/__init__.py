"""Capturing data in a spoken dialogue: fields, and forms of them. Pure; `agent.capture.form_runner` runs them."""

from agent.capture.amounts import Amount
from agent.capture.choices import Choice, yes_or_no
from agent.capture.dates import Date
from agent.capture.digits import Digits, PhoneNumber
from agent.capture.email import Email
from agent.capture.field import Field
from agent.capture.form import Form
from agent.capture.names import SpelledName
from agent.capture.times import Time

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
