// Package graph is a directed acyclic graph of work: nodes run when all they
// depend on has ended.
package graph

import (
	"context"
	"fmt"
	"sync"
)

// A Graph is built once and walked any number of times. The zero value is
// empty. It is not safe for concurrent building.
type Graph struct {
	names []string
	next  [][]int // successors of a node
	prev  [][]int
}

// AddNode adds a node and answers its number. The name is for error messages.
func (g *Graph) AddNode(name string) int {
	g.names = append(g.names, name)
	g.next = append(g.next, nil)
	g.prev = append(g.prev, nil)
	return len(g.names) - 1
}

// AddEdge has node to wait for node from.
func (g *Graph) AddEdge(from, to int) {
	g.next[from] = append(g.next[from], to)
	g.prev[to] = append(g.prev[to], from)
}

// Len is the number of nodes.
func (g *Graph) Len() int { return len(g.names) }

// Predecessors are the nodes that node waits for.
func (g *Graph) Predecessors(node int) []int { return g.prev[node] }

// SortNodes returns the nodes in an order in which each node comes after the nodes that
// it waits for. Nodes that wait for nothing are ordered by number. A cycle is an error
// that names its members.
func (g *Graph) SortNodes() ([]int, error) {
	waits := make([]int, g.Len())
	for _, tos := range g.next {
		for _, to := range tos {
			waits[to]++
		}
	}
	var ready, order []int
	for n, w := range waits {
		if w == 0 {
			ready = append(ready, n)
		}
	}
	for len(ready) > 0 {
		n := ready[0]
		ready = ready[1:]
		order = append(order, n)
		for _, to := range g.next[n] {
			if waits[to]--; waits[to] == 0 {
				ready = append(ready, to)
			}
		}
	}
	if len(order) == g.Len() {
		return order, nil
	}
	return nil, fmt.Errorf("a cycle: %v", g.findCycle(waits))
}

// findCycle returns the names of one cycle among nodes that still wait.
func (g *Graph) findCycle(waits []int) []string {
	at := -1
	for n, w := range waits {
		if w > 0 {
			at = n
			break
		}
	}
	seen := map[int]int{}
	var path []int
	for {
		if start, ok := seen[at]; ok {
			var names []string
			for _, n := range path[start:] {
				names = append(names, g.names[n])
			}
			return names
		}
		seen[at] = len(path)
		path = append(path, at)
		for _, p := range g.prev[at] {
			if waits[p] > 0 {
				at = p
				break
			}
		}
	}
}

// Walk calls fn for every node, each as soon as all it waits for has
// returned, concurrently, and returns when all have. fn itself decides what
// a failed predecessor means to it; after ctx is done it is still called, so
// that every node has an outcome. The graph must have no cycle.
func (g *Graph) Walk(ctx context.Context, fn func(ctx context.Context, node int)) error {
	if _, err := g.SortNodes(); err != nil {
		return err
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		waits = make([]int, g.Len())
		start func(int)
	)
	for n := range waits {
		waits[n] = len(g.prev[n])
	}
	start = func(n int) {
		wg.Go(func() {
			fn(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			for _, to := range g.next[n] {
				if waits[to]--; waits[to] == 0 {
					start(to)
				}
			}
		})
	}
	mu.Lock()
	for n := range waits {
		if len(g.prev[n]) == 0 {
			start(n)
		}
	}
	mu.Unlock()
	wg.Wait()
	return nil
}
