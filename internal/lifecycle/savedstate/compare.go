package savedstate

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
)

// HaveSameSpec reports whether two descriptions are equal, including passwords.
func HaveSameSpec(a, b *v1alpha1.Cluster) bool {
	x, err1 := json.Marshal(a.Spec)
	y, err2 := json.Marshal(b.Spec)
	return err1 != nil || err2 != nil || bytes.Equal(x, y)
}

// HaveSameSpecInAnyOrder is HaveSameSpec for hosts in any order.
func HaveSameSpecInAnyOrder(a, b *v1alpha1.Cluster) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, c := range []*v1alpha1.Cluster{a, b} {
		slices.SortFunc(c.Spec.Hosts, func(x, y v1alpha1.Host) int { return strings.Compare(x.Name, y.Name) })
	}
	return HaveSameSpec(a, b)
}
