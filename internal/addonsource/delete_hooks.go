package addonsource

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/internal/bounded"
)

// A DeleteHooks has the hooks of a chart for the deletion of its objects. The zero value has
// no hooks.
type DeleteHooks struct {
	Hooks []Hook `json:"hooks,omitempty"`
	// Timeout limits the hooks before the deletion, and the hooks after it.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// DeleteHooks returns the deletion hooks of the add-on.
func (a Addon) DeleteHooks() DeleteHooks {
	if len(a.Last) == 0 {
		return DeleteHooks{}
	}
	return DeleteHooks{Hooks: a.Last, Timeout: a.Timeout}
}

// IsSame reports whether the hooks are the same.
func (f DeleteHooks) IsSame(other DeleteHooks) (bool, error) {
	one, err := json.Marshal(f)
	if err != nil {
		return false, err
	}
	two, err := json.Marshal(other)
	return bytes.Equal(one, two), err
}

// Encode returns the stored form: compressed JSON.
func (f DeleteHooks) Encode() ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if err := json.NewEncoder(z).Encode(f); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// DecodeDeleteHooks decodes the stored form of hooks. Its size is limited, because the content of a
// Secret in the cluster may have been changed.
func DecodeDeleteHooks(raw []byte) (f DeleteHooks, err error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return DeleteHooks{}, err
	}
	text, err := bounded.ReadAll(z, bounded.Document)
	if err != nil {
		return DeleteHooks{}, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return DeleteHooks{}, err
	}
	return f, nil
}

// checkStorable rejects hooks that are too large for a Secret.
func (w *loadRun) checkStorable(a *Addon) error {
	raw, err := a.DeleteHooks().Encode()
	if err != nil {
		return fmt.Errorf("reading add-on %s: %w", a.Name, err)
	}
	if len(raw) > corev1.MaxSecretSize {
		return w.refuseAddon(IDUnusable, ".chart",
			fmt.Sprintf("the hooks for the deletion of add-on %s have %d KiB after compression, but the cluster can store only %d",
				a.Name, len(raw)>>10, corev1.MaxSecretSize>>10),
			"disable the hooks with values, or make them smaller")
	}
	return nil
}
