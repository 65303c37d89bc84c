package remote

import (
	"encoding/json"

	"slipway.dev/slipway/internal/exact"
)

// Arguments and paths can contain bytes that are not UTF-8. They reach hosts unchanged.

type plainCommand Command

type exactCommand struct {
	*plainCommand
	Argv []exact.Text `json:"argv,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (c Command) MarshalJSON() ([]byte, error) {
	return json.Marshal(exactCommand{(*plainCommand)(&c), exact.ToTexts(c.Argv)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Command) UnmarshalJSON(raw []byte) error {
	e := exactCommand{plainCommand: (*plainCommand)(c)}
	err := json.Unmarshal(raw, &e)
	c.Argv = exact.ToStrings(e.Argv)
	return err
}

type plainCopy Copy

type exactCopy struct {
	*plainCopy
	Path exact.Text `json:"path,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (c Copy) MarshalJSON() ([]byte, error) {
	return json.Marshal(exactCopy{(*plainCopy)(&c), exact.Text(c.Path)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Copy) UnmarshalJSON(raw []byte) error {
	e := exactCopy{plainCopy: (*plainCopy)(c)}
	err := json.Unmarshal(raw, &e)
	c.Path = string(e.Path)
	return err
}
