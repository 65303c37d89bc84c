package lifecycle

import (
	"testing"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/remote"
)

// TestPrepare_NamesOtherManagerFirst plans for a cluster that another manager has taken, and has begun to delete. The
// findings of the hosts are its work, and their remedies would be wrong.
func TestPrepare_NamesOtherManagerFirst(t *testing.T) {
	t.Parallel()
	w := running(t, threeAndTwo, threeAndTwo)
	delete(w.Hosts["cp1"].Files, facts.EtcdData)
	w.Hosts["cp1"].APISilent = true
	w.API.StopMember("cp1")
	plan := func(takeOver bool, want string) {
		request := applying(w.Manifest())
		request.TakeOver = takeOver
		_, err := w.service().Prepare(t.Context(), request, nil)
		refusal(t, err, want)
	}
	plan(false, "etcd-data-lost")
	w.Hosts["cp2"].Lock.Manager = remote.Manager{ID: "0123456789abcdef0123456789abcdef", Fence: 99}
	plan(false, "other-manager")
	plan(true, "etcd-data-lost")
}
