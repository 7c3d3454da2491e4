// Package clients lets the client libraries that people use talk to Weir: kcat (librdkafka), kafka-python, franz-go and the
// Java producer. What goes in must come out byte for byte.
//
// kcat is installed with the system's packages, kafka-python by the test itself into a virtual environment in the user's
// cache folder. A test whose client is missing is skipped and says how to get it. WEIR_FULL=1 sends a million lines for
// each codec and writes test/results/clients.json.
package clients
