package manifests

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"slipway.dev/slipway/internal/bundle/operatorimage"
)

// KeepInstalled sets the options that have no value from an installed operator, so that another installation changes
// only what the user names. An image is kept only if it does not follow the version.
func (o *Options) KeepInstalled(d *appsv1.Deployment) {
	spec := d.Spec.Template.Spec
	if o.Image == "" && !FollowsVersion(d) {
		o.Image = ImageOf(d)
	}
	if o.PullSecrets == nil {
		for _, s := range spec.ImagePullSecrets {
			o.PullSecrets = append(o.PullSecrets, s.Name)
		}
	}
	if o.Replicas == 0 && d.Spec.Replicas != nil {
		o.Replicas = *d.Spec.Replicas
	}
	for _, v := range spec.Volumes {
		if v.Name == dataVolumeName && v.PersistentVolumeClaim != nil {
			o.DataClaim = cmp.Or(o.DataClaim, v.PersistentVolumeClaim.ClaimName)
		}
	}
	o.Executor = cmp.Or(o.Executor, findArgument(d, "--executor"))
	o.APIURL = cmp.Or(o.APIURL, findArgument(d, "--api-url"))
}

// FollowsVersion reports whether the operator has the default image, whose tag is the version.
func FollowsVersion(d *appsv1.Deployment) bool {
	return strings.HasPrefix(ImageOf(d), operatorimage.Repository+":")
}

// findArgument returns the value of an argument of the operator, "" if it has none.
func findArgument(d *appsv1.Deployment, name string) string {
	args := findContainer(d).Args
	if at := slices.Index(args, name); at >= 0 && at+1 < len(args) {
		return args[at+1]
	}
	return ""
}
