//go:build linux

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
)

// containerRuns says why no container of this name runs with an image, or nil.
// It is asked of the runtime: a static pod's command may be the same before and
// after its image has changed.
func (s *session) containerRuns(ctx context.Context, name, image string) error {
	out, err := s.output(ctx, "crictl", "ps", "--state", "Running", "--name", "^"+name+"$", "--output", "json")
	if err != nil {
		return err
	}
	var list struct {
		Containers []struct {
			Image struct {
				// By what name the kubelet was asked for it; the other one is
				// a digest.
				Asked string `json:"userSpecifiedImage"`
			} `json:"image"`
		} `json:"containers"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return fmt.Errorf("reading the list of containers: %w", err)
	}
	is := "does not run"
	for _, c := range list.Containers {
		if c.Image.Asked == image {
			return nil
		}
		is = "runs " + path.Base(c.Image.Asked)
	}
	return fmt.Errorf("%s %s, not %s", name, is, path.Base(image))
}
