package probe

import "container/heap"

// queue holds probes by the time of their next check, the earliest first.
type queue []*runner

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(x any) {
	r := x.(*runner)
	r.place = len(*q)
	*q = append(*q, r)
}

func (q *queue) Pop() any {
	old := *q
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	r.place = -1
	return r
}

// put sets when r is due, in the queue or not.
func (q *queue) put(r *runner) {
	if r.place >= 0 {
		heap.Fix(q, r.place)
		return
	}
	heap.Push(q, r)
}

// drop takes r out, if it is in.
func (q *queue) drop(r *runner) {
	if r.place >= 0 {
		heap.Remove(q, r.place)
	}
}
