"""Why requests were slow: frames of request records in, findings out. No I/O, no Streamlit."""
