package controlplane

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"slipway.dev/slipway/api/v1alpha1"
)

// namespacePrefix is the prefix of the paths of subresources.
const namespacePrefix = PathPrefix + "/namespaces/"

// A Subresource returns a part of an object, as JSON. An apierrors.APIStatus is an error for the user.
//
// Kubernetes has no subresources of custom resources, except for status and scale. So ours have their own path, and the
// same rights as all others: GET /slipway/v1/namespaces/NAMESPACE/operations/NAME/plan needs the verb get for the resource
// operations/plan of group slipway.dev in that namespace.
type Subresource = func(r *http.Request, object types.NamespacedName) (any, error)

// A subresourceResolver describes requests for subresources to the filters of the API server: authorisation, flow control
// and audit.
type subresourceResolver struct{ apirequest.RequestInfoResolver }

// NewRequestInfo implements apirequest.RequestInfoResolver.
func (s subresourceResolver) NewRequestInfo(r *http.Request) (*apirequest.RequestInfo, error) {
	if !strings.HasPrefix(r.URL.Path, namespacePrefix) {
		return s.RequestInfoResolver.NewRequestInfo(r)
	}
	as, url := r.WithContext(r.Context()), *r.URL
	url.Path = "/apis/" + v1alpha1.APIVersion + strings.TrimPrefix(r.URL.Path, PathPrefix)
	as.URL = &url
	info, err := s.RequestInfoResolver.NewRequestInfo(as)
	if err == nil {
		info.Path = r.URL.Path
	}
	return info, err
}

// subresources serves Subresources by "resource/subresource".
type subresources map[string]Subresource

// ServeHTTP implements http.Handler. It uses the same description of the request as the authorisation.
func (s subresources) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	result, err := s.get(r)
	code := http.StatusOK
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		is := status.Status()
		is.APIVersion, is.Kind = "v1", "Status"
		result, code = is, int(is.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	_ = out.Encode(result) // the client may be gone
}

func (s subresources) get(r *http.Request) (any, error) {
	info, ok := apirequest.RequestInfoFrom(r.Context())
	if !ok {
		return nil, errors.New("the request has no description")
	}
	get := s[groupResource(info).Resource]
	if get == nil || !info.IsResourceRequest || info.Namespace == "" || len(info.Parts) != 3 {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, groupResource(info), info.Name, "", 0, true)
	}
	if r.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(groupResource(info), info.Verb)
	}
	return get(r, types.NamespacedName{Namespace: info.Namespace, Name: info.Name})
}

// groupResource returns the resource of a request.
func groupResource(info *apirequest.RequestInfo) schema.GroupResource {
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	return schema.GroupResource{Group: v1alpha1.Group, Resource: resource}
}
