// Package exact keeps text byte for byte in JSON. The name of a file, the target of a
// link and the argument of a program can contain any bytes, and package encoding/json
// replaces bytes that are not UTF-8.
package exact

import (
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Text is a string in JSON if it is UTF-8, as most are. Else it is an object that has
// its bytes: {"bytes": "<base64>"}.
type Text string

type other struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON returns the text in JSON.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(other{[]byte(t)})
}

// UnmarshalJSON reads what MarshalJSON returns.
func (t *Text) UnmarshalJSON(raw []byte) error {
	if len(raw) == 0 || raw[0] != '{' {
		return json.Unmarshal(raw, (*string)(t))
	}
	var o other
	if err := json.Unmarshal(raw, &o); err != nil {
		return err
	}
	if len(o.Bytes) == 0 {
		return errors.New("text is a string, or an object with its bytes")
	}
	*t = Text(o.Bytes)
	return nil
}

// ToTexts converts a list.
func ToTexts(list []string) []Text { return convertList[Text](list) }

// ToStrings converts a list back.
func ToStrings(list []Text) []string { return convertList[string](list) }

func convertList[To, From ~string](list []From) []To {
	if list == nil {
		return nil
	}
	out := make([]To, len(list))
	for i, s := range list {
		out[i] = To(s)
	}
	return out
}
