"""pyfence"""
