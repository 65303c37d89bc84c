package archive

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/records"
)

const (
	fileSuffix = ".zst"
	indexWord  = "index"
	// randomLength is the length of a random part of a name. The name of an incomplete file has two of
	// them, and still fits into the 255 bytes of a file system.
	randomLength = 6
)

// A name is a name of a file: of an operation, or of an index if the operation is "". No part of it has an
// underscore or a dot.
type name struct {
	cluster, operation string
	uid                types.UID
	write              string // is different in each write
}

// newName returns the name for a new file of an operation. Names come from an API and from users, so
// they are checked here.
func newName(o *v1alpha1.Operation) (name, error) {
	n := name{o.Spec.ClusterRef.Name, o.Name, o.UID, randomWord()}
	if err := n.check(); err != nil {
		return n, fmt.Errorf("naming a file of the archive: %w", err)
	}
	return n, nil
}

func randomWord() string { return strings.ToLower(rand.Text()[:randomLength]) }

// check returns records.ErrInvalidName unless it can be the name of a file of an operation.
func (n name) check() error {
	return errors.Join(records.CheckName(n.cluster), records.CheckName(n.operation), records.CheckName(string(n.uid)),
		records.CheckName(n.write))
}

// isOf reports whether it is the name of a file of an operation.
func (n name) isOf(o *v1alpha1.Operation) bool {
	return n.operation == o.Name && n.uid == o.UID && n.cluster == o.Spec.ClusterRef.Name
}

// refersTo reports whether it is the name of a file of an operation with this name, and with this UID
// unless it is "". A UID can also take the place of the name.
func (n name) refersTo(id string, uid types.UID) bool {
	return n.operation != "" && (n.operation == id || string(n.uid) == id) && (uid == "" || n.uid == uid)
}

func (a *Archive) prefixOf(cluster string) string { return a.namespace + "_" + cluster + "_" }

func (a *Archive) fileOf(n name) string {
	return a.prefixOf(n.cluster) + n.operation + "_" + string(n.uid) + "_" + n.write + fileSuffix
}

func (a *Archive) indexOf(cluster string) string { return a.prefixOf(cluster) + indexWord + fileSuffix }

// parseName returns the parts of the name of a file.
func (a *Archive) parseName(file string) (n name, ok bool) {
	rest, ok := strings.CutPrefix(file, a.namespace+"_")
	if !ok {
		return n, false
	}
	if rest, ok = strings.CutSuffix(rest, fileSuffix); !ok {
		return n, false
	}
	switch parts := strings.Split(rest, "_"); {
	case len(parts) == 2 && parts[1] == indexWord:
		n = name{cluster: parts[0]}
		return n, records.CheckName(n.cluster) == nil
	case len(parts) == 4:
		n = name{parts[0], parts[1], types.UID(parts[2]), parts[3]}
		return n, n.check() == nil
	}
	return n, false
}
