"""Views of what a run did: the prefix tree replayed, the schedule as a Gantt chart."""
