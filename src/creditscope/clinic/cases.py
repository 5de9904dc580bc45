"""All cases, and the half that each is in."""

from creditscope.clinic import (
    faults_information,
    faults_labels,
    faults_numbers,
    faults_paths,
    faults_scale,
    faults_units,
    faults_updates,
    healthy_others,
    healthy_own,
)
from creditscope.clinic._case import FAULTS, WELL, Case, Half, split

FILES = (
    faults_labels,
    faults_numbers,
    faults_paths,
    faults_scale,
    faults_units,
    faults_information,
    faults_updates,
    healthy_own,
    healthy_others,
)
"""Importing them makes their cases known."""
CASES: tuple[Case, ...] = (*FAULTS, *WELL)
HALVES: dict[str, Half] = split(CASES)
