"""All cases, and the half that each is in."""

from creditscope.clinic import (
    faults_information,
    faults_labels,
    faults_numbers,
    faults_paths,
    faults_scale,
    faults_units,
    faults_updates,
    healthy_odd,
    healthy_others,
    healthy_usual,
    healthy_young,
)
from creditscope.clinic._case import FAULTS, WELL, Case, split
from creditscope.clinic.results import Half

FILES = (
    faults_labels,
    faults_numbers,
    faults_paths,
    faults_scale,
    faults_units,
    faults_information,
    faults_updates,
    healthy_usual,
    healthy_odd,
    healthy_young,
    healthy_others,
)
"""Importing them makes their cases known."""
CASES: tuple[Case, ...] = (*FAULTS, *WELL)
HALVES: dict[str, Half] = split(CASES)
