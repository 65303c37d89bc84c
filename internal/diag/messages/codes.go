package messages

import (
	"fmt"
	"go/format"
	"strings"
)

// CodeTable returns the source of the table of package errorcode.
func CodeTable() (string, error) {
	var b strings.Builder
	b.WriteString(`// Code generated from internal/diag/messages by 'go test ./internal/diag/messages -update'. DO NOT EDIT.

package errorcode

import "slipway.dev/slipway/api/v1alpha1"

// ofID has the code of each message id.
var ofID = map[string]v1alpha1.ErrorCode{
`)
	for _, s := range Table() {
		for _, m := range s.Messages {
			if !m.IsWarning {
				fmt.Fprintf(&b, "%q: v1alpha1.Error%s,\n", m.ID, m.Code)
			}
		}
	}
	b.WriteString("}\n")
	text, err := format.Source([]byte(b.String()))
	return string(text), err
}
