package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A PodImage is an image of pods.
type PodImage struct {
	// Name is the name in pods, ID the id of the runtime: with a digest if the image was
	// pulled.
	Name, ID string
}

// PodImages returns the images of all pods, each once, sorted by name.
func (c *Client) PodImages(ctx context.Context) ([]PodImage, error) {
	list, err := c.dynamic.Resource(pods).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", c.describeError(err))
	}
	ids := map[string]string{}
	for i := range list.Items {
		var p corev1.Pod
		if err := fromUnstructured(&list.Items[i], &p); err != nil {
			return nil, fmt.Errorf("reading pod %s: %w", list.Items[i].GetName(), err)
		}
		is := map[string]string{}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			is[s.Name] = s.ImageID
		}
		for _, one := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			if id := is[one.Name]; ids[one.Image] == "" || id > ids[one.Image] { // of several ids, always choose the same
				ids[one.Image] = id
			}
		}
	}
	var out []PodImage
	for name, id := range ids {
		out = append(out, PodImage{name, id})
	}
	slices.SortFunc(out, func(a, b PodImage) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
