// Package rest serves what the API has, besides the objects themselves: parts of objects, page by page. A request is
// authorised before it comes here.
package rest

import (
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
)

// PlanResource is the resource that Plans serve: a role names it.
const PlanResource = "operations/plan"

// Parameters of a request for a plan.
const (
	paramHost     = "host"
	paramStep     = "step"
	paramLimit    = "limit"
	paramContinue = "continue"
)

// Plans serve the plans of operations.
type Plans struct {
	// OpenRecords returns the records of a namespace.
	OpenRecords func(namespace string) (records.Backend, error)
}

// Get returns a page of the plan of an operation. An error for the user is an apierrors.APIStatus.
func (p Plans) Get(r *http.Request, key types.NamespacedName) (any, error) {
	filter, err := readFilter(r)
	if err != nil {
		return nil, err
	}
	backend, err := p.OpenRecords(key.Namespace)
	if err != nil {
		return nil, err
	}
	is, err := backend.Operations().LoadPlan(r.Context(), key.Name)
	if errors.Is(err, records.ErrNotFound) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.Group, Resource: PlanResource}, key.Name)
	}
	if err != nil {
		return nil, err
	}
	page, err := is.Page(filter)
	switch {
	case errors.Is(err, plan.ErrFilter):
		return nil, apierrors.NewBadRequest(err.Error())
	case errors.Is(err, plan.ErrChanged):
		return nil, apierrors.NewResourceExpired(err.Error())
	}
	return page, err
}

// readFilter returns the selection of a request.
func readFilter(r *http.Request) (f plan.Filter, err error) {
	for name, values := range r.URL.Query() {
		value := values[0]
		if len(values) > 1 {
			return f, apierrors.NewBadRequest("the parameter " + name + " comes more than once")
		}
		switch name {
		case "timeout", "pretty": // of every request; the API server uses them
		case paramHost:
			f.Host = &value
		case paramStep:
			f.Step = value
		case paramContinue:
			f.Continue = value
		case paramLimit:
			if f.Limit, err = strconv.Atoi(value); err != nil || f.Limit == 0 {
				return f, apierrors.NewBadRequest("the parameter limit must be a number from 1 to " + strconv.Itoa(plan.MaxPageSize))
			}
		default:
			return f, apierrors.NewBadRequest(
				"the parameter " + strconv.Quote(name) + " is unknown: use host, step, limit or continue")
		}
	}
	return f, nil
}
