package sandboxcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"slipway.dev/slipway/internal/sandbox"
)

// home is Slipway's state directory.
func home() (string, error) {
	return place("SLIPWAY_HOME", "XDG_DATA_HOME", ".local/share")
}

// cache is Slipway's cache directory.
func cache() (string, error) {
	return place("SLIPWAY_CACHE", "XDG_CACHE_HOME", ".cache")
}

// place is the directory that own names, else "slipway" in the one that xdg
// names, else in rel of the home directory. (Under sudo, own names a
// directory of the person who called.)
func place(own, xdg, rel string) (string, error) {
	if dir := os.Getenv(own); dir != "" {
		return filepath.Abs(dir)
	}
	if dir := os.Getenv(xdg); filepath.IsAbs(dir) {
		return filepath.Join(dir, "slipway"), nil
	}
	dir, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the home directory (%s names another): %w", own, err)
	}
	return filepath.Join(dir, rel, "slipway"), nil
}

// owner is the person who called sudo; nil when nobody did.
func owner() *sandbox.Owner {
	uid, errU := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, errG := strconv.Atoi(os.Getenv("SUDO_GID"))
	if os.Geteuid() != 0 || errU != nil || errG != nil || uid == 0 {
		return nil
	}
	return &sandbox.Owner{UID: uid, GID: gid}
}
