package wspath

import "slices"

// Move is where a file or directory was, and where it is: at another path. The content
// of a directory moves with it.
type Move struct{ From, To Path }

// Follow returns where what was at p is after the move; ok is false if it is neither
// what moves nor in it.
func (m Move) Follow(p Path) (at Path, ok bool) {
	rel, ok := p.Rel(m.From)
	if !ok {
		return "", false
	}
	return m.To.Join(string(rel)), true
}

// Back returns the move that undoes m.
func (m Move) Back() Move { return Move{From: m.To, To: m.From} }

// Moved returns where what was at p is after moves that happen at once: the innermost
// that it is in decides. ok is false if none does.
func Moved(moves []Move, p Path) (at Path, ok bool) {
	var nearest Path
	for _, m := range moves {
		if to, in := m.Follow(p); in && (!ok || len(m.From) > len(nearest)) {
			nearest, at, ok = m.From, to, true
		}
	}
	return at, ok
}

// NetMoves returns where directories are before and after moves that happen one
// after the other, the outermost first.
func NetMoves(moves []Move) []Move {
	var out []Move
	for _, m := range moves {
		if !slices.ContainsFunc(out, func(x Move) bool { return x.To == m.From }) {
			from := m.From // where it was before what was moved above it
			for _, x := range out {
				if was, ok := x.Back().Follow(m.From); ok {
					from = was
				}
			}
			out = append(out, Move{From: from, To: m.From})
		}
		for i := range out {
			if at, ok := m.Follow(out[i].To); ok {
				out[i].To = at
			}
		}
	}
	out = slices.DeleteFunc(out, func(x Move) bool { return x.From == x.To })
	slices.SortStableFunc(out, func(a, b Move) int { return len(a.To.Components()) - len(b.To.Components()) })
	return out
}
