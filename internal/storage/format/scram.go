package format

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"hash"
	"io"
	"strconv"
	"strings"

	"weir/internal/records"
)

// scramMechanism is one of the mechanisms of UserScramCredentialRecord.
type scramMechanism struct {
	id            int8
	label         string // in messages
	hash          func() hash.Hash
	minIterations int
}

func scramMechanisms(name string) (scramMechanism, bool) {
	switch name {
	case "SCRAM-SHA-256":
		return scramMechanism{1, "SCRAM_SHA_256", sha256.New, 4096}, true
	case "SCRAM-SHA-512":
		return scramMechanism{2, "SCRAM_SHA_512", sha512.New, 4096}, true
	}
	return scramMechanism{}, false
}

// maxIterations is the most that Kafka accepts.
const maxIterations = 16384

// ParseScram makes the credential of an --add-scram argument:
//
//	SCRAM-SHA-256=[name=alice,password=alice-secret]
//	SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]
//
// The salt is taken from rand when it is not given. The messages are Kafka's.
func ParseScram(arg string, rand io.Reader) (records.UserScramCredentialRecord, error) {
	r := records.NewUserScramCredentialRecord()
	name, rest, ok := strings.Cut(arg, "=")
	body, open := strings.CutPrefix(rest, "[")
	body, shut := strings.CutSuffix(body, "]")
	if !ok || !open || !shut {
		return r, refuse("Failed to parse the argument of add-scram; it looks like SCRAM-SHA-256=[name=alice,password=alice-secret]")
	}
	m, ok := scramMechanisms(name)
	if !ok {
		return r, refuse("The add-scram mechanism %s is not supported.", name)
	}
	args, err := scramArguments(body)
	if err != nil {
		return r, err
	}
	if r.Name = args["name"]; r.Name == "" {
		return r, refuse("You must supply 'name' to add-scram")
	}
	r.Mechanism = m.id
	iterations := m.minIterations
	if text, given := args["iterations"]; given {
		if iterations, err = strconv.Atoi(text); err != nil {
			return r, refuse("The 'iterations' value %s of add-scram is not a number", text)
		}
	}
	switch {
	case iterations < m.minIterations:
		return r, refuse("The 'iterations' value must be >= %d for add-scram using %s", m.minIterations, m.label)
	case iterations > maxIterations:
		return r, refuse("The 'iterations' value must be <= %d for add-scram using %s", maxIterations, m.label)
	}
	r.Iterations = int32(iterations)
	salted, err := m.salted(&r, args, rand)
	if err != nil {
		return r, err
	}
	client, server := m.mac(salted, "Client Key"), m.mac(salted, "Server Key")
	h := m.hash()
	h.Write(client)
	r.StoredKey, r.ServerKey = h.Sum(nil), server
	return r, nil
}

// salted sets the salt of r and returns the salted password (RFC 5802, SaltedPassword).
func (m scramMechanism) salted(r *records.UserScramCredentialRecord, args map[string]string, rand io.Reader) ([]byte, error) {
	password, plain := args["password"]
	ready, done := args["saltedpassword"]
	salt, salty := args["salt"]
	switch {
	case plain && done:
		return nil, refuse("You must only supply one of 'password' or 'saltedpassword' to add-scram")
	case !plain && !done:
		return nil, refuse("You must supply one of 'password' or 'saltedpassword' to add-scram")
	case done && !salty:
		return nil, refuse("You must supply 'salt' with 'saltedpassword' to add-scram")
	}
	var err error
	if salty {
		if r.Salt, err = base64.StdEncoding.DecodeString(salt); err != nil {
			return nil, refuse("The 'salt' of add-scram is not base64: %v", err)
		}
	} else {
		r.Salt = make([]byte, 26)
		if _, err := io.ReadFull(rand, r.Salt); err != nil {
			return nil, err
		}
	}
	if done {
		salted, err := base64.StdEncoding.DecodeString(ready)
		if err != nil {
			return nil, refuse("The 'saltedpassword' of add-scram is not base64: %v", err)
		}
		return salted, nil
	}
	return pbkdf2.Key(m.hash, password, r.Salt, int(r.Iterations), m.hash().Size())
}

func (m scramMechanism) mac(key []byte, text string) []byte {
	h := hmac.New(m.hash, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// scramArguments reads key=value pairs parted by commas; values may stand in double quotes.
func scramArguments(body string) (map[string]string, error) {
	out := map[string]string{}
	for body != "" {
		key, rest, ok := strings.Cut(body, "=")
		if !ok {
			return nil, refuse("Failed to parse %q in the argument of add-scram: no equals sign", body)
		}
		var value string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if value, rest, ok = strings.Cut(quoted, `"`); !ok {
				return nil, refuse("Failed to parse the argument of add-scram: a quote is not closed")
			}
			rest = strings.TrimPrefix(rest, ",")
		} else {
			value, rest, _ = strings.Cut(rest, ",")
		}
		key = strings.TrimSpace(key)
		if _, twice := out[key]; twice {
			return nil, refuse("'%s' is given twice to add-scram", key)
		}
		switch key {
		case "name", "password", "salt", "saltedpassword", "iterations":
			out[key] = value
		default:
			return nil, refuse("add-scram does not know '%s'", key)
		}
		body = rest
	}
	return out, nil
}
