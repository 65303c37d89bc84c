package secret

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
)

// maxBytes limits the file of a secret: a device or a wrong path must not be read without
// end.
const maxBytes = 64 << 10

// ErrSource reports a source with both a file and a variable, or with neither.
var ErrSource = errors.New("exactly one of file and env must be set")

// ResolveSource reads the secret that src names, without its last line break. A relative file
// name is relative to the working directory. A missing or empty secret is an error; no
// error contains its text.
func ResolveSource(src v1alpha1.SecretSource) (String, error) {
	switch {
	case (src.File == "") == (src.Env == ""):
		return String{}, ErrSource
	case src.Env != "":
		return fromEnv(src.Env)
	default:
		return fromFile(src.File)
	}
}

func fromEnv(name string) (String, error) {
	text, ok := os.LookupEnv(name)
	if !ok {
		return String{}, fmt.Errorf("environment variable %s is not set", name)
	}
	if text == "" {
		return String{}, fmt.Errorf("environment variable %s is empty", name)
	}
	return New(text), nil
}

func fromFile(name string) (String, error) {
	f, err := os.Open(name)
	if err != nil {
		return String{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return String{}, err
	}
	if len(data) > maxBytes {
		return String{}, fmt.Errorf("%s is too large for a secret (the limit is %d bytes)", name, maxBytes)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return String{}, fmt.Errorf("%s is empty", name)
	}
	return New(text), nil
}
