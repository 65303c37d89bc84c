package wire

import (
	"encoding/json"
	"fmt"
	"io"
)

// Protocol is the version of what is spoken here.
const Protocol = 2

// Hello is the first frame in each direction.
type Hello struct {
	Protocol int `json:"protocol"`
	// Build is the SHA-256 of the helper's program, in hex; "" from the
	// manager.
	Build string `json:"build,omitempty"`
}

// maxHello bounds what is read from a peer that may not be one.
const maxHello = 4096

func writeHello(w io.Writer, h Hello) error {
	raw, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encoding hello: %w", err)
	}
	_, err = w.Write(appendFrame(nil, frame{kind: kindHello, payload: raw}))
	return err
}

// readHello reads the peer's hello; another protocol is a *ProtocolError.
func readHello(r io.Reader) (Hello, error) {
	f, err := readFrame(r)
	if err != nil {
		return Hello{}, err
	}
	var h Hello
	if f.kind != kindHello || len(f.payload) > maxHello || json.Unmarshal(f.payload, &h) != nil {
		return Hello{}, &ProtocolError{"the peer did not say hello"}
	}
	if h.Protocol != Protocol {
		return Hello{}, &ProtocolError{fmt.Sprintf("the peer speaks version %d, this is version %d", h.Protocol, Protocol)}
	}
	return h, nil
}
