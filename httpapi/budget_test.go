package httpapi

import "testing"

func TestBudget(t *testing.T) {
	b := budget{max: 100}
	var one, two, three int64
	if !b.take(&one, 60) || b.take(&two, 50) || !b.take(&two, 40) {
		t.Fatalf("%d used, %d and %d held", b.used, one, two)
	}
	if b.take(&one, 1) {
		t.Error("more than the bound while others hold some")
	}
	b.release(&two)
	if !b.take(&one, 500) || b.take(&three, 1) {
		t.Errorf("%d used: alone a request gets what it needs, and no other then", b.used)
	}
	b.release(&one)
	b.release(&one)
	if b.used != 0 || one != 0 {
		t.Errorf("%d used, %d held after the release", b.used, one)
	}
	off := budget{}
	if !off.take(&one, 1<<40) || !off.take(&two, 1<<40) {
		t.Error("no bound refuses")
	}
}
