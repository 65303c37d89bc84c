//go:build linux

package helper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/run"
)

// renew has the host renew what is due of its certificates, and tells the
// journal what came of it.
func renew(ctx context.Context, file string, to io.Writer) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading what is to be renewed: %w", err)
	}
	var job op.AutoRenewal
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&job); err != nil {
		return fmt.Errorf("reading %s, which another version may have written: %w", file, err)
	}
	if err := settle(); err != nil {
		return err
	}
	out, err := (&run.Runner{}).AutoRenew(ctx, job)
	if err != nil {
		return err
	}
	if out.Result == op.AutoFailed {
		return errors.New(out.Message)
	}
	line := string(out.Result)
	if out.Result == op.AutoRenewed {
		line += ": " + strings.Join(out.Renewed, " ")
	}
	_, err = fmt.Fprintln(to, strings.TrimSuffix(line+": "+out.Message, ": "))
	return err
}
