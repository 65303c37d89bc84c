package wire

import (
	"encoding/json"
	"fmt"
	"io"
)

// Protocol is the version of the protocol.
const Protocol = 2

// hello is the first frame in each direction.
type hello struct {
	Protocol int `json:"protocol"`
}

// maxHello limits the data from a peer that may not use this protocol.
const maxHello = 4096

func writeHello(w io.Writer) error {
	raw, err := json.Marshal(hello{Protocol: Protocol})
	if err != nil {
		return fmt.Errorf("encoding hello: %w", err)
	}
	_, err = w.Write(appendFrame(nil, frame{kind: kindHello, payload: raw}))
	return err
}

// readHello reads the peer's hello; another protocol is a *ProtocolError.
func readHello(r io.Reader) error {
	f, err := readFrame(r, nil)
	if err != nil {
		return err
	}
	var h hello
	if f.kind != kindHello || len(f.payload) > maxHello || json.Unmarshal(f.payload, &h) != nil {
		return &ProtocolError{"the other side did not send its hello message"}
	}
	if h.Protocol != Protocol {
		return &ProtocolError{fmt.Sprintf("the other side uses protocol version %d, this side uses version %d", h.Protocol, Protocol)}
	}
	return nil
}
