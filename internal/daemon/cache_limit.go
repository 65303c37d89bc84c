package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/bundle/bundlestore"
)

// cacheInterval is the time between two checks of the size of the cache.
const cacheInterval = 10 * time.Minute

// A cacheLimit limits the bundles in a cache.
type cacheLimit struct {
	dir string
	// size is the limit in bytes, 0 for none.
	size int64
	log  *slog.Logger
}

// addCacheLimitFlag adds the flag with the limit in GiB.
func addCacheLimitFlag(cmd *cobra.Command, gib *uint32, value uint32) {
	cmd.Flags().Uint32Var(gib, "max-cache-size", value,
		"remove the bundles that were not used for the longest time, until the others have at most this size in `GiB`; 0 for no limit")
}

// keep removes bundles until ctx ends. A bundle that an operation uses is kept, and a bundle of a registry is fetched again.
func (c cacheLimit) keep(ctx context.Context) {
	if c.size == 0 {
		return
	}
	tick := time.NewTicker(cacheInterval)
	defer tick.Stop()
	for {
		removed, err := bundlestore.Shrink(ctx, c.dir, c.size, time.Now())
		for i := range removed {
			c.log.Info("a bundle was removed from the cache", "bundle", filepath.Base(removed[i].Path), "size", removed[i].Size())
		}
		if err != nil && ctx.Err() == nil {
			c.log.Warn("the size of the cache was not limited", "cache", c.dir, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
