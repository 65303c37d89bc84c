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

// A Farewell has the hooks of a chart for the deletion of its objects. The zero value has
// no hooks.
type Farewell struct {
	Hooks []Hook `json:"hooks,omitempty"`
	// Timeout limits the hooks before the deletion, and the hooks after it.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Farewell returns the deletion hooks of the add-on.
func (a Addon) Farewell() Farewell {
	if len(a.Last) == 0 {
		return Farewell{}
	}
	return Farewell{Hooks: a.Last, Timeout: a.Timeout}
}

// Same reports whether the hooks are the same.
func (f Farewell) Same(other Farewell) (bool, error) {
	one, err := json.Marshal(f)
	if err != nil {
		return false, err
	}
	two, err := json.Marshal(other)
	return bytes.Equal(one, two), err
}

// Pack returns the stored form: compressed JSON.
func (f Farewell) Pack() ([]byte, error) {
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

// Unpack decodes the stored form of hooks. Its size is limited, because the content of a
// Secret in the cluster may have been changed.
func Unpack(raw []byte) (f Farewell, err error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return Farewell{}, err
	}
	text, err := bounded.ReadAll(z, bounded.Document)
	if err != nil {
		return Farewell{}, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return Farewell{}, err
	}
	return f, nil
}

// checkStorable rejects hooks that are too large for a Secret.
func (w *loadRun) checkStorable(a *Addon) error {
	raw, err := a.Farewell().Pack()
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
