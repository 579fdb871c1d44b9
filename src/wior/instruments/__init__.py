"""Instruments: what a problem, a method or an order is, measured."""
